"""references: for each op the test that compares its meaning with something else.

The meaning of an op is its `reference`, which the NumPy executor, eager calls and host values run: that these agree
with it shows nothing. Each test here compares it with values worked out by hand, with a library that has the op, or
with an equation whose other side is another op or a NumPy slice. None needs a library that is not a dependency, but
`dali_function`, which is DALI's. tests/conformance/test_references.py shows that each fails with a wrong reference.
"""

from __future__ import annotations

__all__ = ["REFERENCES"]

REFERENCES: dict[str, dict[str, tuple[str, str]]] = {
    "tests/ops/test_affine.py": {
        "Affine": ("values", "test_a_shift_moves_whole_pixels_and_fills_the_rest"),
        "Rotate": ("library NumPy", "test_an_angle_of_affine_goes_clockwise_and_one_of_rotate_counter_clockwise"),
    },
    "tests/ops/test_blur_sharpness.py": {
        "AdjustSharpness": ("values", "test_sharpness_by_hand"),
        "GaussianBlur": ("values", "test_a_blurred_point_is_the_kernel"),
    },
    "tests/ops/test_cast.py": {
        "Cast": ("values", "test_integers_saturate_in_both_directions"),
    },
    "tests/ops/test_clahe.py": {
        "Clahe": ("values", "test_tables_are_mixed_between_the_middles_of_tiles"),
    },
    "tests/ops/test_clip_boxes.py": {
        "ClipBoxes": ("values", "test_boxes_are_cut_off_and_those_of_which_nothing_is_left_dropped"),
    },
    "tests/ops/test_color_jitter.py": {
        "ColorJitter": ("values", "test_each_step_by_hand"),
    },
    "tests/ops/test_colour.py": {
        "AdjustBrightness": ("values", "test_brightness_is_a_sum_in_units_of_the_range_toward_zero_and_saturated"),
        "AdjustContrast": ("values", "test_contrast_is_about_the_mean_of_each_channel_and_not_of_the_image"),
        "AdjustGamma": ("values", "test_gamma_is_a_power_times_the_gain"),
        "AdjustHue": ("values", "test_hue_turns_red_to_green_to_blue"),
        "AdjustJpegQuality": ("library Pillow", "test_jpeg_quality_is_what_a_jpeg_file_of_this_quality_gives"),
        "AdjustSaturation": ("values", "test_saturation_moves_channels_toward_the_largest_and_stops_at_pure_colour"),
        "HsvToRgb": ("equation", "test_hsv_and_back"),
        "PerImageStandardization": (
            "library NumPy",
            "test_standardization_gives_mean_0_and_deviation_1_over_all_channels",
        ),
        "RgbToHsv": ("values", "test_hsv_and_back"),
    },
    "tests/ops/test_convert_boxes.py": {
        "ConvertBoxes": ("values", "test_each_form_to_each"),
    },
    "tests/ops/test_convert_image_dtype.py": {
        "ConvertImageDtype": ("values", "test_values_worked_out_by_hand"),
    },
    "tests/ops/test_crop_and_resize.py": {
        "CropAndResize": ("values", "test_corners_of_a_box_are_centres_of_pixels"),
        "CropAndResizeAll": ("values", "test_what_lies_outside_is_the_value_and_not_mixed_with_the_edge"),
    },
    "tests/ops/test_crops.py": {
        "CenterCrop": ("values", "test_windows_by_hand"),
        "CentralCrop": ("values", "test_windows_by_hand"),
        "CropToBoundingBox": ("values", "test_windows_by_hand"),
        "PadToBoundingBox": ("values", "test_windows_by_hand"),
        "ResizeShorter": ("library Pillow", "test_resize_shorter_keeps_integers_and_pillows_pixels"),
        "ResizeWithCropOrPad": ("values", "test_windows_by_hand"),
        "Slice": ("values", "test_windows_by_hand"),
    },
    "tests/ops/test_dali_function.py": {
        "DaliFunction": ("values", "test_an_operator_runs_between_ops_of_the_catalogue"),
    },
    "tests/ops/test_decode_image.py": {
        "DecodeImage": ("library Pillow", "test_lossless_formats_give_back_the_pixels"),
        "DecodePng": ("values", "test_of_sixteen_bits_the_upper_eight_are_taken"),
        "ExtractJpegShape": ("values", "test_header_shape_needs_no_pixels"),
    },
    "tests/ops/test_decode_indices.py": {
        "NativeDecoding": ("values", "test_a_palette_png_gives_its_indices"),
    },
    "tests/ops/test_decode_jpeg.py": {
        "DecodeJpeg": ("library Pillow", "test_colours_are_pillows"),
        "DecodeSmallerJpeg": ("values", "test_blocks_of_one_level_keep_it_at_a_fraction_of_the_size"),
    },
    "tests/ops/test_decode_smaller.py": {
        "ResizeWindow": ("equation", "test_a_window_lies_where_it_lies_in_the_whole_image"),
    },
    "tests/ops/test_detection_crops.py": {
        "RandomIouCrop": ("equation", "test_a_window_of_half_of_each_side_lies_where_its_numbers_say"),
        "RandomSizeCrop": ("equation", "test_the_window_of_detr_has_sides_between_its_bounds"),
        "RandomZoomOut": ("equation", "test_the_canvas_of_a_zoom_out_holds_the_image"),
    },
    "tests/ops/test_elastic.py": {
        "Elastic": ("equation", "test_a_pixel_is_that_of_the_place_its_field_leads_to"),
    },
    "tests/ops/test_extract_patches.py": {
        "ExtractPatches": ("values", "test_patches_by_hand"),
    },
    "tests/ops/test_flips.py": {
        "FlipLeftRight": ("values", "test_flips_do_what_their_names_say"),
        "FlipUpDown": ("values", "test_flips_do_what_their_names_say"),
        "RandomFlipLeftRight": ("equation", "test_flips_do_what_their_names_say"),
        "RandomFlipUpDown": ("equation", "test_flips_do_what_their_names_say"),
        "ResizeFlip": ("equation", "test_a_resized_image_is_mirrored_where_it_is_said"),
    },
    "tests/ops/test_grayscale.py": {
        "GrayscaleToRgb": ("values", "test_a_gray_image_is_repeated"),
        "RgbToGrayscale": ("values", "test_bytes_come_back_as_bytes_toward_zero"),
    },
    "tests/ops/test_histograms.py": {
        "Autocontrast": ("values", "test_autocontrast_by_hand"),
        "Equalize": ("values", "test_equalize_by_hand"),
    },
    "tests/ops/test_mixup_cutmix.py": {
        "Cutmix": ("values", "test_cutmix_by_hand"),
        "Mixup": ("values", "test_mixup_by_hand"),
    },
    "tests/ops/test_mixup_or_cutmix.py": {
        "MixupOrCutmix": ("equation", "test_the_chosen_one_is_computed_with_its_own_numbers"),
    },
    "tests/ops/test_noise.py": {
        "GaussianNoise": ("values", "test_gaussian_noise_by_hand"),
        "SaltAndPepper": ("equation", "test_salt_and_pepper_stand_where_the_numbers_of_pixels_are_small_and_large"),
    },
    "tests/ops/test_normalize.py": {
        "CropMirrorNormalize": ("values", "test_what_is_cropped_and_mirrored_before_by_hand"),
        "Normalize": ("values", "test_each_channel_has_its_mean_and_deviation"),
    },
    "tests/ops/test_one_hot.py": {
        "OneHot": ("values", "test_a_class_is_one_and_the_others_zero"),
    },
    "tests/ops/test_pad.py": {
        "CornerCrop": ("values", "test_five_crops_by_hand"),
        "Pad": ("values", "test_padding_goes_from_the_left_clockwise"),
        "ResizeWithPad": ("equation", "test_a_letterbox_has_its_colour_on_two_sides"),
    },
    "tests/ops/test_perspective.py": {
        "Perspective": ("values", "test_points_that_all_move_alike_shift_the_image"),
        "RandomPerspective": ("equation", "test_corners_that_were_drawn_are_moved_as_those_that_are_given"),
    },
    "tests/ops/test_policies.py": {
        "AugMix": ("values", "test_layers_are_applied_one_after_another_by_hand"),
        "AutoAugment": ("values", "test_layers_are_applied_one_after_another_by_hand"),
        "RandAugment": ("values", "test_layers_are_applied_one_after_another_by_hand"),
        "TrivialAugmentWide": ("values", "test_layers_are_applied_one_after_another_by_hand"),
    },
    "tests/ops/test_py_function.py": {
        "PyFunction": ("values", "test_python_numbers_take_the_type_of_the_spec"),
    },
    "tests/ops/test_random_choices.py": {
        "RandomApply": ("values", "test_p_0_and_1_are_never_and_always"),
        "RandomChoice": ("values", "test_p_0_and_1_are_never_and_always"),
        "RandomCrop": ("equation", "test_eager_calls_return_them_too"),
        "RandomOrder": ("values", "test_a_batch_outside_of_a_chain_has_an_order_for_each_image"),
    },
    "tests/ops/test_random_erasing.py": {
        "RandomErasing": ("values", "test_one_rectangle_is_filled_and_nothing_else_changes"),
    },
    "tests/ops/test_random_forms.py": {
        "PermuteChannels": ("values", "test_drawn_orders_and_shifts_of_channels_by_hand"),
        "RandomAdjustSharpness": ("equation", "test_with_a_probability_of_1_it_is_the_op_and_with_0_nothing"),
        "RandomAffine": ("equation", "test_with_a_range_of_one_number_it_is_the_op_of_this_number"),
        "RandomAutocontrast": ("equation", "test_with_a_probability_of_1_it_is_the_op_and_with_0_nothing"),
        "RandomBrightness": ("equation", "test_with_the_number_that_was_drawn_it_is_the_op_of_this_number"),
        "RandomChannelPermutation": ("values", "test_drawn_orders_and_shifts_of_channels_by_hand"),
        "RandomChannelShift": ("values", "test_drawn_orders_and_shifts_of_channels_by_hand"),
        "RandomClahe": ("equation", "test_with_a_probability_of_1_it_is_the_op_and_with_0_nothing"),
        "RandomContrast": ("equation", "test_with_the_number_that_was_drawn_it_is_the_op_of_this_number"),
        "RandomEqualize": ("equation", "test_with_a_probability_of_1_it_is_the_op_and_with_0_nothing"),
        "RandomGaussianBlur": ("equation", "test_with_a_probability_of_1_it_is_the_op_and_with_0_nothing"),
        "RandomHue": ("equation", "test_with_the_number_that_was_drawn_it_is_the_op_of_this_number"),
        "RandomInvert": ("equation", "test_with_a_probability_of_1_it_is_the_op_and_with_0_nothing"),
        "RandomJpegQuality": ("equation", "test_with_the_number_that_was_drawn_it_is_the_op_of_this_number"),
        "RandomPosterize": ("equation", "test_with_a_probability_of_1_it_is_the_op_and_with_0_nothing"),
        "RandomRotation": ("equation", "test_with_a_range_of_one_number_it_is_the_op_of_this_number"),
        "RandomSaturation": ("equation", "test_with_the_number_that_was_drawn_it_is_the_op_of_this_number"),
        "RandomShortestSize": ("equation", "test_with_a_range_of_one_number_it_is_the_op_of_this_number"),
        "RandomSolarize": ("equation", "test_with_a_probability_of_1_it_is_the_op_and_with_0_nothing"),
        "ScaleJitter": ("equation", "test_with_a_range_of_one_number_it_is_the_op_of_this_number"),
    },
    "tests/ops/test_random_resized_crop.py": {
        "RandomResizedCrop": ("library Pillow", "test_the_pixels_are_crop_then_resize"),
    },
    "tests/ops/test_random_transform.py": {
        "RandomTransform": ("values", "test_shifts_are_along_the_axis_of_their_name"),
    },
    "tests/ops/test_random_uniform.py": {
        "RandomUniform": ("values", "test_bounds_may_be_traced"),
    },
    "tests/ops/test_resize.py": {
        "Resize": ("values", "test_values_computed_by_hand"),
        "ResizeArea": ("values", "test_values_computed_by_hand"),
    },
    "tests/ops/test_rot90.py": {
        "Rot90": ("values", "test_one_turn_goes_counter_clockwise"),
    },
    "tests/ops/test_sample_distorted_bounding_box.py": {
        "SampleDistortedBoundingBox": ("values", "test_the_law_by_hand"),
    },
    "tests/ops/test_shapes.py": {
        "Concat": ("library NumPy", "test_after_batch_an_axis_is_that_of_the_batch_and_rows_stay_apart"),
        "ExpandDims": ("library NumPy", "test_after_batch_an_axis_is_that_of_the_batch_and_rows_stay_apart"),
        "Gather": ("library NumPy", "test_after_batch_an_axis_is_that_of_the_batch_and_rows_stay_apart"),
        "LookUp": ("library NumPy", "test_a_traced_function_gives_numpys_results"),
        "Reshape": ("library NumPy", "test_after_batch_an_axis_is_that_of_the_batch_and_rows_stay_apart"),
        "Squeeze": ("library NumPy", "test_after_batch_an_axis_is_that_of_the_batch_and_rows_stay_apart"),
        "Stack": ("library NumPy", "test_after_batch_an_axis_is_that_of_the_batch_and_rows_stay_apart"),
        "Subscript": ("library NumPy", "test_after_batch_an_axis_is_that_of_the_batch_and_rows_stay_apart"),
    },
    "tests/ops/test_tones.py": {
        "Invert": ("values", "test_levels_by_hand"),
        "Posterize": ("values", "test_levels_by_hand"),
        "RandomGrayscale": ("values", "test_gray_by_hand"),
        "Solarize": ("values", "test_levels_by_hand"),
    },
    "tests/ops/test_transpose.py": {
        "Transpose": ("values", "test_channels_move_to_the_front_and_back"),
    },
    "tests/ops/test_where.py": {
        "Arithmetic": ("library NumPy", "test_minimum_and_maximum_are_numpys"),
        "Where": ("values", "test_after_batch_a_flag_chooses_for_each_row"),
    },
}
"""By file and op: "values", "library" with its name, or "equation"; and the test."""
