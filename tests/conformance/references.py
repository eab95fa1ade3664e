"""references: for each op the test that compares its meaning with something else.

The meaning of an op is its `reference`, which the NumPy executor, eager calls and host values run: that these agree
with it shows nothing. Each test here compares it with values worked out by hand, with a library that has the op, or
with an equation whose other side is another op or a NumPy slice. None needs a library that is not a dependency, but
`dali_function`, which is DALI's. tests/conformance/test_references.py shows that each fails with a wrong reference.
"""

from __future__ import annotations

__all__ = ["REFERENCES"]

_TABLE: dict[str, dict[str, str]] = {
    "tests/ops/test_affine.py": {
        "test_a_shift_moves_whole_pixels_and_fills_the_rest": "values: Affine",
        "test_an_angle_of_affine_goes_clockwise_and_one_of_rotate_counter_clockwise": "library NumPy: Rotate",
        "test_points_that_all_move_alike_shift_the_image": "values: Perspective",
        "test_corners_that_were_drawn_are_moved_as_those_that_are_given": "equation: RandomPerspective",
    },
    "tests/ops/test_box_crops.py": {
        "test_a_window_of_half_of_each_side_lies_where_its_numbers_say": "equation: RandomIouCrop",
        "test_the_window_of_detr_has_sides_between_its_bounds": "equation: RandomSizeCrop",
        "test_the_canvas_of_a_zoom_out_holds_the_image": "equation: RandomZoomOut",
        "test_the_law_by_hand": "values: SampleDistortedBoundingBox",
    },
    "tests/ops/test_boxes.py": {
        "test_boxes_are_cut_off_and_those_of_which_nothing_is_left_dropped": "values: ClipBoxes",
        "test_each_form_to_each": "values: ConvertBoxes",
    },
    "tests/ops/test_colour.py": {
        "test_each_step_by_hand": "values: ColorJitter",
        "test_brightness_is_a_sum_in_units_of_the_range_toward_zero_and_saturated": "values: AdjustBrightness",
        "test_contrast_is_about_the_mean_of_each_channel_and_not_of_the_image": "values: AdjustContrast",
        "test_gamma_is_a_power_times_the_gain": "values: AdjustGamma",
        "test_hue_turns_red_to_green_to_blue": "values: AdjustHue",
        "test_jpeg_quality_is_what_a_jpeg_file_of_this_quality_gives": "library Pillow: AdjustJpegQuality",
        "test_saturation_moves_channels_toward_the_largest_and_stops_at_pure_colour": "values: AdjustSaturation",
        "test_hsv_and_back": "values: HsvToRgb RgbToHsv",
        "test_standardization_gives_mean_0_and_deviation_1_over_all_channels": "library NumPy: PerImageStandardization",
    },
    "tests/ops/test_crop_and_resize.py": {
        "test_corners_of_a_box_are_centres_of_pixels": "values: CropAndResize",
        "test_what_lies_outside_is_the_value_and_not_mixed_with_the_edge": "values: CropAndResizeAll",
        "test_patches_by_hand": "values: ExtractPatches",
    },
    "tests/ops/test_dali_function.py": {
        "test_an_operator_runs_between_ops_of_the_catalogue": "values: DaliFunction",
    },
    "tests/ops/test_decode_jpeg.py": {
        "test_colours_are_pillows": "library Pillow: DecodeJpeg",
        "test_blocks_of_one_level_keep_it_at_a_fraction_of_the_size": "values: DecodeSmallerJpeg",
        "test_a_window_lies_where_it_lies_in_the_whole_image": "equation: ResizeWindow",
    },
    "tests/ops/test_decode_png.py": {
        "test_lossless_formats_give_back_the_pixels": "library Pillow: DecodeImage",
        "test_of_sixteen_bits_the_upper_eight_are_taken": "values: DecodePng",
        "test_header_shape_needs_no_pixels": "values: ExtractJpegShape",
        "test_a_palette_png_gives_its_indices": "values: NativeDecoding",
    },
    "tests/ops/test_dtypes.py": {
        "test_integers_saturate_in_both_directions": "values: Cast",
        "test_values_worked_out_by_hand": "values: ConvertImageDtype",
    },
    "tests/ops/test_filters.py": {
        "test_sharpness_by_hand": "values: AdjustSharpness",
        "test_a_blurred_point_is_the_kernel": "values: GaussianBlur",
        "test_tables_are_mixed_between_the_middles_of_tiles": "values: Clahe",
    },
    "tests/ops/test_fitting.py": {
        "test_the_pixels_are_those_of_a_resize_to_this_size": "equation: Fit",
    },
    "tests/ops/test_keras.py": {
        "test_shifts_are_along_the_axis_of_their_name": "values: RandomTransform",
    },
    "tests/ops/test_mixup_cutmix.py": {
        "test_cutmix_by_hand": "values: Cutmix",
        "test_mixup_by_hand": "values: Mixup",
    },
    "tests/ops/test_mixup_or_cutmix.py": {
        "test_the_chosen_one_is_computed_with_its_own_numbers": "equation: MixupOrCutmix",
    },
    "tests/ops/test_noise.py": {
        "test_a_pixel_is_that_of_the_place_its_field_leads_to": "equation: Elastic",
        "test_gaussian_noise_by_hand": "values: GaussianNoise",
        "test_salt_and_pepper_stand_where_the_numbers_of_pixels_are_small_and_large": "equation: SaltAndPepper",
    },
    "tests/ops/test_normalize.py": {
        "test_what_is_cropped_and_mirrored_before_by_hand": "values: CropMirrorNormalize",
        "test_each_channel_has_its_mean_and_deviation": "values: Normalize",
    },
    "tests/ops/test_pad.py": {
        "test_five_crops_by_hand": "values: CornerCrop",
        "test_padding_goes_from_the_left_clockwise": "values: Pad",
        "test_a_letterbox_has_its_colour_on_two_sides": "equation: ResizeWithPad",
    },
    "tests/ops/test_policies.py": {
        "test_layers_are_applied_one_after_another_by_hand": (
            "values: AugMix AutoAugment RandAugment TrivialAugmentWide"
        ),
    },
    "tests/ops/test_random_choices.py": {
        "test_p_0_and_1_are_never_and_always": "values: RandomApply RandomChoice",
        "test_eager_calls_return_them_too": "equation: RandomCrop",
        "test_a_batch_outside_of_a_chain_has_an_order_for_each_image": "values: RandomOrder",
    },
    "tests/ops/test_random_forms.py": {
        "test_drawn_orders_and_shifts_of_channels_by_hand": (
            "values: PermuteChannels RandomChannelPermutation RandomChannelShift"
        ),
        "test_with_a_probability_of_1_it_is_the_op_and_with_0_nothing": (
            "equation: RandomAdjustSharpness RandomAutocontrast RandomClahe RandomEqualize "
            "RandomGaussianBlur RandomInvert RandomPosterize RandomSolarize"
        ),
        "test_with_a_range_of_one_number_it_is_the_op_of_this_number": (
            "equation: RandomAffine RandomRotation RandomShortestSize ScaleJitter"
        ),
        "test_with_the_number_that_was_drawn_it_is_the_op_of_this_number": (
            "equation: RandomBrightness RandomContrast RandomHue RandomJpegQuality RandomSaturation"
        ),
    },
    "tests/ops/test_random_windows.py": {
        "test_one_rectangle_is_filled_and_nothing_else_changes": "values: RandomErasing",
        "test_the_pixels_are_crop_then_resize": "library Pillow: RandomResizedCrop",
    },
    "tests/ops/test_sizes.py": {
        "test_windows_by_hand": (
            "values: CenterCrop CentralCrop CropToBoundingBox PadToBoundingBox ResizeWithCropOrPad Slice"
        ),
        "test_resize_shorter_keeps_integers_and_pillows_pixels": "library Pillow: ResizeShorter",
        "test_values_computed_by_hand": "values: Resize ResizeArea",
    },
    "tests/ops/test_tones.py": {
        "test_a_gray_image_is_repeated": "values: GrayscaleToRgb",
        "test_bytes_come_back_as_bytes_toward_zero": "values: RgbToGrayscale",
        "test_autocontrast_by_hand": "values: Autocontrast",
        "test_equalize_by_hand": "values: Equalize",
        "test_levels_by_hand": "values: Invert Posterize Solarize",
        "test_gray_by_hand": "values: RandomGrayscale",
    },
    "tests/ops/test_turns.py": {
        "test_flips_do_what_their_names_say": "values: FlipLeftRight FlipUpDown RandomFlipLeftRight RandomFlipUpDown",
        "test_a_resized_image_is_mirrored_where_it_is_said": "equation: ResizeFlip",
        "test_one_turn_goes_counter_clockwise": "values: Rot90",
        "test_channels_move_to_the_front_and_back": "values: Transpose",
    },
    "tests/ops/test_values.py": {
        "test_a_class_is_one_and_the_others_zero": "values: OneHot",
        "test_python_numbers_take_the_type_of_the_spec": "values: PyFunction",
        "test_bounds_may_be_traced": "values: RandomUniform",
        "test_after_batch_an_axis_is_that_of_the_batch_and_rows_stay_apart": (
            "library NumPy: Concat ExpandDims Gather Reshape Squeeze Stack Subscript"
        ),
        "test_a_traced_function_gives_numpys_results": "library NumPy: LookUp",
        "test_minimum_and_maximum_are_numpys": "library NumPy: Arithmetic",
        "test_after_batch_a_flag_chooses_for_each_row": "values: Where",
    },
}
"""By file and test: "values", "library" with its name, or "equation"; and the ops."""

REFERENCES: dict[str, dict[str, tuple[str, str]]] = {
    path: {op: (line.partition(": ")[0], test) for test, line in tests.items() for op in line.split(": ")[1].split()}
    for path, tests in _TABLE.items()
}
"""By file and op: the kind, and the test."""
